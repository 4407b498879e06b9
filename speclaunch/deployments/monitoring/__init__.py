"""Render alerts, dashboards and scrape settings for a deployment and its exact release."""
