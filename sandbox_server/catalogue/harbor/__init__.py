"""Harbor's task folders: task.toml, instruction.md, environment/, tests/, solution/."""
