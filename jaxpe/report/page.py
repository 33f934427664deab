"""The page: one self-contained `report.html`, nothing fetched, no script."""

import base64
from typing import Any

from jaxpe._core.errors import require
from jaxpe.report.words import number, percent, visible


def template(name: str) -> Any:
    """A template of this folder. Raises `MissingExtraError` without the extra `report`."""
    jinja2 = require("jinja2", extra="report")
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("jaxpe", "report/templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "number": number,
        "percent": percent,
        "visible": visible,
        "data_uri": _data_uri,
    }
    return environment.get_template(name)


def _data_uri(svg: bytes) -> str:
    return "data:image/svg+xml;base64," + base64.b64encode(svg).decode()
