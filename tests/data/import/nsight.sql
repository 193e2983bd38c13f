-- A report of Nsight Systems as its SQLite export has it, made by hand with round times: two processes, each of
-- which sees one of two GPUs as its device 0. The columns are those of 2026's exports that are read, and a few more.
PRAGMA page_size = 512;

CREATE TABLE META_DATA_EXPORT (name TEXT NOT NULL, value TEXT);
INSERT INTO META_DATA_EXPORT VALUES
    ('EXPORT_PRODUCT_NAME', 'NVIDIA Nsight Systems'), ('EXPORT_PRODUCT_VERSION', '2026.2.1.210');

CREATE TABLE TARGET_INFO_SESSION_START_TIME (utcEpochNs INTEGER, utcTime TEXT);
INSERT INTO TARGET_INFO_SESSION_START_TIME VALUES (1700000000000000000, '2023-11-14T22:13:20');

CREATE TABLE TARGET_INFO_SYSTEM_ENV (globalVid INTEGER, devStateName TEXT, name TEXT, value TEXT);
INSERT INTO TARGET_INFO_SYSTEM_ENV VALUES (1, 'Local (CLI)', 'CudaDriverVersion', '13000');

CREATE TABLE TARGET_INFO_GPU (vmId INTEGER, id INTEGER, name TEXT, cuDevice INTEGER);
INSERT INTO TARGET_INFO_GPU VALUES (1, 0, 'NVIDIA H100 PCIe', NULL), (1, 1, 'NVIDIA H200', NULL);

CREATE TABLE TARGET_INFO_CUDA_DEVICE (gpuId INTEGER, cudaId INTEGER, pid INTEGER, uuid TEXT);
INSERT INTO TARGET_INFO_CUDA_DEVICE VALUES (0, 0, 100, 'a'), (1, 0, 200, 'b');

CREATE TABLE PROCESSES (globalPid INTEGER, pid INTEGER, name TEXT);
INSERT INTO PROCESSES VALUES
    ((1 << 48) + (100 << 24), 100, 'python3'), ((1 << 48) + (200 << 24), 200, 'python3');

CREATE TABLE StringIds (id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL);
INSERT INTO StringIds VALUES
    (1, 'void gemm<(int)64>(float *, int)'), (2, 'gemm'),
    (3, 'void vectorized_elementwise_kernel<(int)4>(int, T2)'), (4, 'vectorized_elementwise_kernel'),
    (5, 'void flash_fwd_kernel<(int)128>(Params)'), (6, 'flash_fwd_kernel'),
    (10, 'cudaLaunchKernel_v7000'), (11, 'cuLaunchKernelEx'), (12, 'cudaLaunchKernelExC_ptsz_v11060'),
    (13, 'cudaMemcpyAsync_v3020'), (14, 'cudaMemsetAsync_v3020'), (15, 'cudaGraphLaunch_v10000'),
    (16, 'cudaStreamSynchronize_v3020'),
    (20, 'model.layers.3.mlp.down_proj'), (21, 'worker');

CREATE TABLE ThreadNames (nameId INTEGER NOT NULL, priority INTEGER, globalTid INTEGER);
INSERT INTO ThreadNames VALUES (21, 20, (1 << 48) + (100 << 24) + 100);

CREATE TABLE ENUM_CUDA_MEM_KIND (id INTEGER NOT NULL PRIMARY KEY, name TEXT, label TEXT);
INSERT INTO ENUM_CUDA_MEM_KIND VALUES
    (1, 'CUDA_MEMOPR_MEMORY_KIND_PINNED', 'Pinned'), (2, 'CUDA_MEMOPR_MEMORY_KIND_DEVICE', 'Device');

CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (
    start INTEGER NOT NULL, end INTEGER NOT NULL, eventClass INTEGER NOT NULL, globalTid INTEGER, correlationId INTEGER,
    nameId INTEGER NOT NULL, returnValue INTEGER NOT NULL
);
INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES
    (1200, 1300, 0, (1 << 48) + (100 << 24) + 100, 1, 10, 0),
    (2200, 2300, 1, (1 << 48) + (100 << 24) + 100, 2, 11, 0),
    (3200, 3300, 0, (1 << 48) + (100 << 24) + 100, 3, 12, 0),
    (3600, 3700, 0, (1 << 48) + (100 << 24) + 100, 4, 13, 0),
    (3800, 3850, 0, (1 << 48) + (100 << 24) + 100, 5, 14, 0),
    (4000, 4200, 0, (1 << 48) + (100 << 24) + 100, 6, 15, 0),
    (4300, 4400, 0, (1 << 48) + (100 << 24) + 100, 7, 15, 0),
    -- It failed.
    (4500, 4600, 0, (1 << 48) + (100 << 24) + 100, 8, 10, 700),
    (4700, 8500, 0, (1 << 48) + (100 << 24) + 100, 9, 16, 0),
    -- The same number as above, in another process.
    (1200, 1250, 0, (1 << 48) + (200 << 24) + 200, 1, 10, 0);

CREATE TABLE NVTX_EVENTS (
    start INTEGER NOT NULL, end INTEGER, eventType INTEGER NOT NULL, text TEXT, globalTid INTEGER, endGlobalTid INTEGER,
    textId INTEGER, domainId INTEGER
);
INSERT INTO NVTX_EVENTS VALUES
    -- A domain, a category and a mark are no ranges.
    (100, NULL, 75, 'NCCL', (1 << 48) + (100 << 24) + 100, NULL, NULL, 1),
    (110, NULL, 33, 'a category', (1 << 48) + (100 << 24) + 100, NULL, NULL, 0),
    (120, NULL, 34, 'a mark', (1 << 48) + (100 << 24) + 100, NULL, NULL, 0),
    -- Begun and ended by calls that needn't nest: the first crosses `decode`, and another thread ends the third.
    (500, 1500, 60, 'a request', (1 << 48) + (100 << 24) + 100, (1 << 48) + (100 << 24) + 100, NULL, 0),
    (900, 9100, 60, 'serving', (1 << 48) + (100 << 24) + 100, (1 << 48) + (100 << 24) + 100, NULL, 0),
    (950, 960, 60, 'elsewhere', (1 << 48) + (100 << 24) + 100, (1 << 48) + (100 << 24) + 101, NULL, 0),
    (1000, 9000, 59, 'decode', (1 << 48) + (100 << 24) + 100, NULL, NULL, 0),
    -- As the hooks of vLLM and SGLang have it.
    (1100, 2000, 59, '{''Module'': ''model.layers.3.self_attn.qkv_proj'', ''TrainableParams'': {''weight'': [3072, 2048]}, ''Inputs'': [[1, 2048]]}', (1 << 48) + (100 << 24) + 100, NULL, NULL, 0),
    (2001, 2002, 59, '{''Module'': ''model.layers.3.self_attn.qkv_proj'', ''Outputs'': [[1, 3072]]}', (1 << 48) + (100 << 24) + 100, NULL, NULL, 0),
    (2100, 3000, 59, NULL, (1 << 48) + (100 << 24) + 100, NULL, 20, 0),
    -- As PyTorch's emit_nvtx has it.
    (3100, 3500, 59, 'aten::mul, seq = 1, op_id = 9', (1 << 48) + (100 << 24) + 100, NULL, NULL, 0),
    -- Not ended when the session was.
    (9200, NULL, 59, 'decode', (1 << 48) + (100 << 24) + 100, NULL, NULL, 0);

CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (
    start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL, contextId INTEGER NOT NULL,
    streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER, demangledName INTEGER NOT NULL,
    shortName INTEGER NOT NULL, gridX INTEGER NOT NULL, gridY INTEGER NOT NULL, gridZ INTEGER NOT NULL,
    blockX INTEGER NOT NULL, blockY INTEGER NOT NULL, blockZ INTEGER NOT NULL, staticSharedMemory INTEGER NOT NULL,
    dynamicSharedMemory INTEGER NOT NULL, graphNodeId INTEGER, graphId INTEGER
);
INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES
    (3000, 3700, 0, 1, 7, 1, (1 << 48) + (100 << 24), 1, 2, 24, 1, 1, 256, 1, 1, 16, 1024, NULL, NULL),
    (3800, 5000, 0, 1, 7, 2, (1 << 48) + (100 << 24), 1, 2, 24, 1, 1, 256, 1, 1, 16, 1024, NULL, NULL),
    (5100, 5400, 0, 1, 7, 3, (1 << 48) + (100 << 24), 3, 4, 8, 1, 1, 128, 1, 1, 0, 0, NULL, NULL),
    -- Two nodes of a graph.
    (6100, 6600, 0, 1, 7, 6, (1 << 48) + (100 << 24), 5, 6, 32, 1, 1, 128, 1, 1, 0, 0, 11, 2),
    (6600, 6900, 0, 1, 7, 6, (1 << 48) + (100 << 24), 5, 6, 32, 1, 1, 128, 1, 1, 0, 0, 12, 2),
    (2000, 2800, 0, 1, 7, 1, (1 << 48) + (200 << 24), 1, 2, 24, 1, 1, 256, 1, 1, 16, 1024, NULL, NULL),
    -- Launched before the session.
    (2900, 3000, 0, 1, 7, 99, (1 << 48) + (200 << 24), 3, 4, 8, 1, 1, 128, 1, 1, 0, 0, NULL, NULL);

CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (
    start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL, streamId INTEGER NOT NULL,
    correlationId INTEGER, globalPid INTEGER, bytes INTEGER NOT NULL, copyKind INTEGER NOT NULL, srcKind INTEGER,
    dstKind INTEGER, graphNodeId INTEGER
);
INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES
    (5500, 5900, 0, 7, 4, (1 << 48) + (100 << 24), 4096, 1, 1, 2, NULL);

CREATE TABLE CUPTI_ACTIVITY_KIND_MEMSET (
    start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL, streamId INTEGER NOT NULL,
    correlationId INTEGER, globalPid INTEGER, bytes INTEGER NOT NULL, memKind INTEGER
);
INSERT INTO CUPTI_ACTIVITY_KIND_MEMSET VALUES (6000, 6050, 0, 7, 5, (1 << 48) + (100 << 24), 64, 2);

-- What `--cuda-graph-trace=graph` has instead of kernels.
CREATE TABLE CUPTI_ACTIVITY_KIND_GRAPH_TRACE (
    start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL, streamId INTEGER NOT NULL,
    correlationId INTEGER, globalPid INTEGER, graphId INTEGER, graphExecId INTEGER
);
INSERT INTO CUPTI_ACTIVITY_KIND_GRAPH_TRACE VALUES (7000, 8000, 0, 7, 7, (1 << 48) + (100 << 24), 5, 6);
