"""The demonstration: hospitals as processes train over HTTP until the privacy budget is spent."""
