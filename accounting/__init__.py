"""Privacy accounting for federated learning: Bayesian and classical, every number a certificate.

Names load on first use, from where `__init__.pyi` says: importing this package, or `accounting.plan`, loads neither
scipy, which both sides of the wire would otherwise load for the plan they share.
"""

import lazy_loader  # pyright: ignore[reportMissingTypeStubs]

# pyright: reportUnknownVariableType=false
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
