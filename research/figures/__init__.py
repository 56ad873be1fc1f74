"""Figures 5.1 to 5.8 and 6.1 to 6.2 of the thesis (Triastcyn 2020), each with what is true beside what is printed.

`python -m research.figures 5.4` computes one and draws it. Numbers lie in CSV files, drawings and the page
docs/figures.md are made from these.
"""
