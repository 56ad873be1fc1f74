"""The coordinator's side of OpenID Connect: who a person is, as an identity provider says. No database, no routes.

`provider` needs the extra `sso`. `settings`, `grants` and `errors` load without it.
"""
