"""Monitoring with Prometheus and Grafana: alert rules and a dashboard for the metrics of docs/metrics.md."""
