-- What rocprofv3 writes by default, made by hand with round times: the tables of one process, whose names end in its id. Of
-- the columns only those that are read.
PRAGMA page_size = 512;

CREATE TABLE rocpd_string_00ab (id INTEGER NOT NULL PRIMARY KEY, guid TEXT, string TEXT NOT NULL);
INSERT INTO rocpd_string_00ab VALUES
    (1, '00ab', 'HIP_RUNTIME_API'), (2, '00ab', 'MARKER_CORE_API'), (3, '00ab', 'KERNEL_DISPATCH'),
    (4, '00ab', 'MEMORY_COPY'), (5, '00ab', 'hipLaunchKernel'), (6, '00ab', 'roctxRangePushA'),
    (7, '00ab', 'hipMemcpyAsync'), (8, '00ab', 'MEMORY_COPY_HOST_TO_DEVICE'), (9, '00ab', 'hipGraphLaunch'),
    (10, '00ab', 'RCCL_API'), (11, '00ab', 'ncclAllReduce');

CREATE TABLE rocpd_info_process_00ab (id INTEGER NOT NULL PRIMARY KEY, nid INTEGER, ppid INTEGER, pid INTEGER, command TEXT);
INSERT INTO rocpd_info_process_00ab VALUES (1, 1, 1, 4242, '/usr/bin/python3 serve.py --token secret');

CREATE TABLE rocpd_info_thread_00ab (id INTEGER NOT NULL PRIMARY KEY, pid INTEGER, tid INTEGER);
INSERT INTO rocpd_info_thread_00ab VALUES (1, 1, 4243);

CREATE TABLE rocpd_info_agent_00ab (
    id INTEGER NOT NULL PRIMARY KEY, type TEXT, absolute_index INTEGER, name TEXT, product_name TEXT
);
INSERT INTO rocpd_info_agent_00ab VALUES
    (1, 'CPU', 0, 'AMD EPYC', 'AMD EPYC'), (2, 'GPU', 1, 'gfx942', 'AMD Instinct MI300X');

CREATE TABLE rocpd_info_kernel_symbol_00ab (id INTEGER NOT NULL PRIMARY KEY, kernel_name TEXT, display_name TEXT);
INSERT INTO rocpd_info_kernel_symbol_00ab VALUES
    (1, '_Z4gemmPf.kd', 'void gemm<64>(float*)'), (2, 'Cijk_Ailk_Bljk_MT64.kd', NULL);

CREATE TABLE rocpd_event_00ab (
    id INTEGER NOT NULL PRIMARY KEY, category_id INTEGER, stack_id INTEGER, parent_stack_id INTEGER,
    correlation_id INTEGER, extdata TEXT
);
INSERT INTO rocpd_event_00ab VALUES
    (1, 2, 1, 0, 0, '{"message": "decode"}'),
    (2, 2, 2, 0, 0, '{"message": "model.layers.2.mlp.down_proj"}'),
    (3, 1, 3, 0, 0, '{}'), (4, 3, 3, 3, 0, '{}'),
    (5, 1, 4, 0, 0, '{}'), (6, 4, 4, 4, 0, '{}'),
    (7, 1, 5, 0, 0, '{}'), (8, 3, 5, 5, 0, '{}'),
    (9, 10, 6, 0, 0, '{}'), (10, 3, 99, 99, 0, '{}');

CREATE TABLE rocpd_region_00ab (
    id INTEGER NOT NULL PRIMARY KEY, nid INTEGER, pid INTEGER, tid INTEGER, start INTEGER, end INTEGER, name_id INTEGER,
    event_id INTEGER
);
INSERT INTO rocpd_region_00ab VALUES
    (1, 1, 1, 1, 1000, 9000, 6, 1), (2, 1, 1, 1, 1100, 2000, 6, 2), (3, 1, 1, 1, 1200, 1300, 5, 3),
    (4, 1, 1, 1, 2100, 2200, 7, 5), (5, 1, 1, 1, 2300, 2400, 9, 7), (6, 1, 1, 1, 2500, 2900, 11, 9);

CREATE TABLE rocpd_kernel_dispatch_00ab (
    id INTEGER NOT NULL PRIMARY KEY, nid INTEGER, pid INTEGER, tid INTEGER, agent_id INTEGER, kernel_id INTEGER,
    dispatch_id INTEGER, queue_id INTEGER, stream_id INTEGER, start INTEGER, end INTEGER, group_segment_size INTEGER,
    workgroup_size_x INTEGER, workgroup_size_y INTEGER, workgroup_size_z INTEGER, grid_size_x INTEGER,
    grid_size_y INTEGER, grid_size_z INTEGER, event_id INTEGER
);
INSERT INTO rocpd_kernel_dispatch_00ab VALUES
    (1, 1, 1, 1, 2, 1, 1, 1, 3, 3000, 3700, 1024, 256, 1, 1, 1024, 1, 1, 4),
    (2, 1, 1, 1, 2, 2, 2, 1, 3, 4000, 4300, 0, 256, 1, 1, 1000, 1, 1, 8),
    (3, 1, 1, 1, 2, 2, 3, 1, 3, 4400, 4500, 0, 256, 1, 1, 1000, 1, 1, 10);

CREATE TABLE rocpd_memory_copy_00ab (
    id INTEGER NOT NULL PRIMARY KEY, nid INTEGER, pid INTEGER, tid INTEGER, start INTEGER, end INTEGER, name_id INTEGER,
    dst_agent_id INTEGER, src_agent_id INTEGER, size INTEGER, stream_id INTEGER, event_id INTEGER
);
INSERT INTO rocpd_memory_copy_00ab VALUES (1, 1, 1, 1, 5000, 5250, 8, 2, 1, 4096, 3, 6);

-- Views are not read: this one would have no end.
CREATE VIEW kernels AS
    WITH RECURSIVE forever (id) AS (SELECT 1 UNION ALL SELECT id + 1 FROM forever) SELECT * FROM forever;
