"""What pages, scripts, help texts, messages and the dashboard name, and whether it exists."""
