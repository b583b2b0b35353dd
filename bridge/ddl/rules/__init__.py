"""The rules that rewrite schema changes for a target, one subject a module.  Pure."""
