"""The wire: each module is one protocol and has its `ROUTER`. Routes find the service's parts in `app.state`."""
