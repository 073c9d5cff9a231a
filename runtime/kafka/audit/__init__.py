"""What requests record in the audit trail."""
