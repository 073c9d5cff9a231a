"""What a real Kafka answered, kept in files, and our server held to it in every test run, without Java."""
