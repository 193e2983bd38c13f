-- Receipts that did not verify when they were collected, and why.
SELECT r.date AS date, r.machine AS machine, r.run_id AS run_id, r.receipt_refused AS receipt_refused,
  r.source AS source
FROM runs r
CROSS JOIN params p
WHERE r.receipt_verifies = false AND r.date >= p.since AND r.date <= p.until
ORDER BY 1 DESC, 2, 3
