"""The live view of running servers, from their /metrics pages: `flashstate watch`.

`sample` reads a page, `window` makes rates of two of them, `poll` fetches, `screen` draws. May import: aiohttp,
prometheus_client, typer and rich; of ours, economics, report and console.
"""
