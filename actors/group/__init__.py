"""One group: its rules, its offsets, and the actor that serialises its requests."""
