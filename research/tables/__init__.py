"""The tables of the papers that this software grew from, run again at worst-case ε: python -m research.tables."""
