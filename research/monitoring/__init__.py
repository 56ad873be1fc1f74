"""How soon a drift of a released model is found under noise, and how often none is taken for one."""
