// Generates some tokens: llama.mjs MODEL [TOKENS].
import {getLlama, LlamaCompletion} from "node-llama-cpp";

const llama = await getLlama({gpu: false, build: "never", maxThreads: 2, logLevel: "error"});
const model = await llama.loadModel({modelPath: process.argv[2]});
const context = await model.createContext({contextSize: 512, threads: 2});
const sequence = context.getSequence();
const completion = new LlamaCompletion({contextSequence: sequence});
console.log(JSON.stringify(await completion.generateCompletion("The quick brown fox", {maxTokens: Number(process.argv[3] ?? 8), temperature: 0})));
const {usedInputTokens, usedOutputTokens} = sequence.tokenMeter;
console.log(`tokens: ${usedInputTokens} ${usedOutputTokens}`);
await llama.dispose();
