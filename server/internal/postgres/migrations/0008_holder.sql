-- Which process holds a gateway's lease. Ids are given by hand: of two processes with one id each renews the lease, and
-- must not drop it, with the other's routes, when it ends.
ALTER TABLE gateways ADD COLUMN holder text NOT NULL DEFAULT '';
