"""A value of a row as JSON has it, and as a line of text."""

import base64
import datetime
import decimal
import json
import math
from typing import Any, Final

#: Characters of a cell that people read.
MAX_CELL: Final = 200


def plain(value: Any) -> Any:
    """As JSON has it, however deep: it knows neither NaN nor infinities, times nor bytes."""
    match value:
        case datetime.datetime() | datetime.date() | datetime.time():
            return value.isoformat()
        case float() if math.isnan(value):
            return None
        case float() if math.isinf(value):
            return "Infinity" if value > 0 else "-Infinity"
        case bytes():
            return base64.b64encode(value).decode()
        case decimal.Decimal():
            return str(value)
        case list() | tuple():
            return [plain(item) for item in value]
        case dict():
            return {name: plain(item) for name, item in value.items()}
    return value


def cell_text(value: Any) -> str | None:
    """At most `MAX_CELL` characters; None for no value."""
    if value is None or isinstance(value, str):
        text = value
    elif isinstance(value, bytes):
        text = f"0x{value[:MAX_CELL].hex()}"
    else:
        # Of a long list, no more than can be shown.
        cut = value[:MAX_CELL] if isinstance(value, list) else value
        of_json = plain(cut)
        text = of_json if isinstance(of_json, str) else json.dumps(of_json, default=str, ensure_ascii=False)
    return text if text is None or len(text) <= MAX_CELL else f"{text[:MAX_CELL]}…"
