"""The codes that solve models, each behind the same few calls."""
