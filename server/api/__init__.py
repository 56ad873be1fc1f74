"""HTTP: one router per noun. A handler says who, parses, calls one service and answers."""
