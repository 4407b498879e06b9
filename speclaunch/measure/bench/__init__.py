"""Speed-up of speculation: engines under their own load generator, compared round by round."""
