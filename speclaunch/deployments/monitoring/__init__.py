"""Alerts, dashboards and scrape settings for a deployment, exact to its release."""
