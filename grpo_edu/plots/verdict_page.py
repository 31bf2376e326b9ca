"""The page of a verdict: its text, and a picture of the push it is about.

There is no script and no outside address.
"""

from __future__ import annotations

import base64
from html import escape

from .style import Picture

PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>{title}</title>
<style>:root{{color-scheme:light dark}}
body{{font:15px/1.6 system-ui,sans-serif;max-width:80rem;margin:2rem auto;padding:0 1rem}}
img{{max-width:100%;height:auto}} pre{{white-space:pre-wrap;overflow-wrap:anywhere}}</style></head>
<body><h1>{title}</h1>{body}</body></html>
"""


def verdict_page(title: str, text: str, picture: Picture) -> str:
    """The page for ``grpo-edu explain --out``: the verdict's text, and the push it is about."""
    alt = (
        "Heat map of the signed push on every token of four completions; "
        "the numbers are in the text."
    )
    data = base64.b64encode(picture.png()).decode()
    image = f'<img alt="{alt}" src="data:image/png;base64,{data}">'
    return PAGE.format(title=escape(title), body=f"<pre>{escape(text)}</pre>{image}")
