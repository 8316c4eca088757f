"""OEF (Middleware 2024): users share types, cooperatively or not, and whole leases follow."""
