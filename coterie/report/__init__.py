"""What a run leaves for people: results, pictures, generated pages."""
