"""Queries: what is asked, who consents, and the answer. Their rounds are those of `server/services/rounds`."""
