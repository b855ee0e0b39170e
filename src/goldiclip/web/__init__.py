"""Search and see in a browser: a server, its documented HTTP API, and one static page."""
