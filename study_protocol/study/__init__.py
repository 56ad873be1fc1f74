"""What a study is and what travels about it."""
