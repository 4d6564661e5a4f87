"""Services of AWS that the emulator lacks, or in which it differs from AWS."""
