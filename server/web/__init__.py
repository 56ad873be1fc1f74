"""The dashboard: static pages without data, and the JSON that they poll with the reader's own key."""
