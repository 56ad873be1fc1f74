"""Modules that commands of several roles share: output, settings files, texts."""
