"""Questions about the hospitals' patients: what is asked, one patient's part of the sum, what is read off the sum."""
