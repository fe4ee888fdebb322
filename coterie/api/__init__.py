"""What `import coterie as ct` offers: tasks, parties, algorithms, and `train`, `price`, `audit` and `load` on them."""
