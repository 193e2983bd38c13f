-- The machines: what they are, how many runs they made on which device, and how much of them other programs used.
SELECT
  r.machine AS machine,
  coalesce(r.device, '') AS device,
  coalesce(max(r.cpu), '') AS cpu,
  max(r.logical_cpus) AS cpus,
  count(*) AS runs,
  max(r.date) AS last_day,
  count(DISTINCT r.session) AS sessions,
  avg(r.others_share) AS others_share,
  avg(CASE WHEN coalesce(r.roof_device, '') = coalesce(r.device, '') THEN r.read_bytes_per_second END) / 1e9
    AS read_gb_per_s
FROM runs r
CROSS JOIN params p
WHERE r.date >= p.since AND r.date <= p.until
GROUP BY r.machine, coalesce(r.device, '')
ORDER BY 5 DESC, 1, 2
