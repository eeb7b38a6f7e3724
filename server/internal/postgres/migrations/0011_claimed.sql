-- When a route was claimed, for the person on call who asks for a device: since when it is connected. The column is no
-- index's, so that a claim still updates its row in place.
ALTER TABLE routes ADD COLUMN claimed_at timestamptz NOT NULL DEFAULT clock_timestamp();
