"""DynamoDB as on AWS: the largest key of a secondary index, and the largest response of BatchGetItem.

It replaces functions of the emulator's tables; see `emulator`.
"""

from __future__ import annotations

import json
from itertools import accumulate
from typing import Any

from slackwater.local.emulator import module, replaces

# Bytes, by type of key ("Constraints in Amazon DynamoDB"). The emulator checks the keys of tables only.
_MAX_KEY_BYTES = {"HASH": 2048, "RANGE": 1024}
# BatchGetItem leaves the keys of items beyond it unprocessed ("BatchGetItem" in DynamoDB's API reference). The emulator
# returns all of them.
_MAX_RESPONSE_BYTES = 16 * 2**20


def register() -> None:
    """Replace the emulator's functions that check an item's keys of secondary indexes and that read items by keys."""
    tables = module("services.dynamodb")

    @replaces(tables, "_index_key_empty_reason")
    def check_index_keys(check: Any, table: Any, item: Any, **update: bool) -> Any:
        for index in table.get("GlobalSecondaryIndexes") or []:
            for key in index["KeySchema"]:
                name, limit = key["AttributeName"], _MAX_KEY_BYTES[key["KeyType"]]
                if len(str(item.get(name, {}).get("S", "")).encode()) > limit:
                    return (
                        f"One or more parameter values were invalid: Size of {name}, a key of the index "
                        f"{index['IndexName']}, has exceeded the size limit of {limit} bytes"
                    )
        return check(table, item, **update)

    @replaces(tables, "_batch_get_item")
    def batch_get_item(batch_get: Any, request: Any) -> Any:
        status, headers, body = batch_get(request)
        if status != 200:  # noqa: PLR2004
            return status, headers, body
        document, free = json.loads(body), _MAX_RESPONSE_BYTES
        for table, items in document["Responses"].items():
            sizes = [size for size in accumulate(map(tables._item_size_bytes, items)) if size <= free]
            keys = request["RequestItems"][table]["Keys"]
            left = [{name: item[name] for name in keys[0]} for item in items[len(sizes) :]]
            if left:
                document["Responses"][table] = items[: len(sizes)]
                document["UnprocessedKeys"][table] = {**request["RequestItems"][table], "Keys": left}
            free -= sizes[-1] if sizes else 0
        return status, headers, json.dumps(document, ensure_ascii=False).encode()
