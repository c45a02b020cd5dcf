"""The control plane: sandboxes are made, found, prolonged and ended here."""

from fastapi import APIRouter

ROUTER = APIRouter(include_in_schema=False)
