-- Receipts that did not verify when they were collected, and why.
SELECT r.date, r.machine, r.run_id, r.receipt_refused, r.source
FROM runs r
CROSS JOIN params p
WHERE r.receipt_verifies = false AND r.date >= p.since AND r.date <= p.until
ORDER BY date DESC, machine, run_id
