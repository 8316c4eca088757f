"""``python -m apportion`` is the command ``apportion``."""

from apportion.command import run

run()
