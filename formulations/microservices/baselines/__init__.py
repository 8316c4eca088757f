"""Rules of thumb and peers under the same contract."""
