"""What all packages share: errors, log lines, text for people."""
