-- Machines on which other work disturbs measurements: the share of watched passes that were disturbed.
-- 1e2: Spark takes 100.0 for a decimal number, and rounds small shares.
SELECT r.machine AS machine, count(DISTINCT r.run_id) AS runs, count(*) AS watched_passes,
  1e2 * sum(CASE WHEN q.is_disturbed THEN 1 ELSE 0 END) / count(*) AS percent_disturbed
FROM passes q
JOIN runs r ON r.run_id = q.run_id
CROSS JOIN params p
WHERE q.is_disturbed IS NOT NULL AND r.date >= p.since AND r.date <= p.until
  AND (p.model = '' OR r.model = p.model)
GROUP BY r.machine
ORDER BY 4 DESC, 1
