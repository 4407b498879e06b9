"""From what was asked for to what one engine version will really run with."""
