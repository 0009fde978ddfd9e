"""The client of record: sends each request once, and classifies what is known of it afterwards."""
