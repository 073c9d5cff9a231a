"""Who may connect and what they may do: users, ACLs and quotas, stored durably."""
