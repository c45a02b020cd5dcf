"""The wire: each module is one protocol and gives its `ROUTER`. `app.state` holds what they speak to."""
