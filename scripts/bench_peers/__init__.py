"""What `bench-peers` makes of the guest's figures: `report.py` tables and bars, `picture.py` a picture."""
