"""Text in any encoding, read as UTF-8."""

from __future__ import annotations

import codecs
import re

from slackwater.receiver.parsing.formats.compression import Stream

BOM = codecs.BOM_UTF8
_UTF8 = frozenset({"utf-8", "utf-8-sig"})
_STRANGE = 0xDC00
"""A byte that is not of the encoding becomes this lone surrogate, and so many more: what strict UTF-8 refuses."""
_MARK = re.compile("[\udc00-\udcff]")


def _mark(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeDecodeError):
        raise error
    return "".join(chr(_STRANGE + byte) for byte in error.object[error.start : error.end]), error.end


codecs.register_error("slackwater.mark", _mark)


class Text:
    """A stream's text as UTF-8; bytes that are not of the encoding stay bytes that are not UTF-8."""

    def __init__(self, stream: Stream, encoding: str) -> None:
        self.misread = f"not {encoding.upper()}"
        """What is said of a text with bytes that are not of its encoding."""
        self._stream = stream
        self._decoder = None if encoding in _UTF8 else codecs.getincrementaldecoder(encoding)("slackwater.mark")

    def read(self, size: int, /) -> bytes:
        """Return some bytes, about `size`; none at the end."""
        if self._decoder is None:
            return self._stream.read(size)
        while chunk := self._stream.read(size):
            if text := self._decoder.decode(chunk):
                return text.encode(errors="surrogatepass")
        return self._decoder.decode(b"", final=True).encode(errors="surrogatepass")

    def shown(self, data: bytes) -> str:
        """Return a piece of what was read, each strange byte written as an escape."""
        if self._decoder is None:
            return data.decode(errors="backslashreplace")
        return _MARK.sub(lambda mark: f"\\x{ord(mark[0]) - _STRANGE:02x}", data.decode(errors="surrogatepass"))
